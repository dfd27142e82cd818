#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"

namespace tessera {

/// What stands before the data of a NumPy .npy file (format versions 1.0 to 3.0): the magic
/// "\x93NUMPY", two version bytes, the length of the rest (2 bytes, 4 from version 2 on), and a
/// Python dictionary such as {'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), }.
struct NpyHeader {
  DType dtype = DType::u16;
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes from the start of the file

  int64_t elements() const;
};

/// An element type as headers name it ("<u2") and the bytes of one element.
struct NpyType {
  std::string_view name;
  int64_t bytes;
};

/// A header of any element type.
struct NpyArray {
  NpyType type;  // one of those that were asked for
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes from the start of the file
};

/// Headers are no longer than this. NumPy's own take 128 bytes.
inline constexpr int64_t kMostNpyHeaderBytes = 4096;

/// Whether a file begins as .npy files do.
bool has_npy_magic(std::span<const std::byte> head);

/// Reads and checks the header of a file whose elements are of one of `types`; see
/// parse_npy_header().
NpyArray parse_npy_array(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& name, std::span<const NpyType> types);

/// The .npy name of an element type ("<u2"); throws Error for bf16, which NumPy does not know.
std::string npy_type_name(DType dtype);

/// Reads and checks a file's header. `head` is the start of the file, the first kMostNpyHeaderBytes
/// where it has so many, `file_bytes` its size; `name` stands in errors. Throws Error when it is
/// malformed, in Fortran order, of an element type that we do not read, or when the size of the
/// data is not what the shape says.
NpyHeader parse_npy_header(std::span<const std::byte> head, int64_t file_bytes,
                           const std::string& name);

/// The header of a [rows, columns] array in C order as we write it, version 1.0.
std::string npy_header(DType dtype, int64_t rows, int64_t columns);

}  // namespace tessera
