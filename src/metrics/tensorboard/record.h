#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Returns the CRC-32C (Castagnoli) as iSCSI defines it (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

/// Returns a record of a TFRecord file: the payload's length (u64), the masked CRC-32C of the
/// length (u32), the payload, and its masked CRC-32C (u32). All numbers are little-endian. A mask
/// rotates the checksum right by 15 bits and adds a constant, because the checksum of data that
/// itself holds checksums would be trivial.
std::string tfrecord(std::string_view payload);

}  // namespace tessera
