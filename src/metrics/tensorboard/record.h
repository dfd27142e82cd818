#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// CRC-32C (Castagnoli), as iSCSI defines it (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

/// A record of a TFRecord file: the payload's length (u64), the masked CRC-32C of that length, the
/// payload, its masked CRC-32C (u32), all little-endian. A mask keeps the checksum of data that
/// holds checksums from being trivial: rotated right by 15 bits, then a constant added.
std::string tfrecord(std::string_view payload);

}  // namespace tessera
