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

/// The header of a NumPy .npy file (format versions 1.0 to 3.0). It precedes the data and consists
/// of the magic "\x93NUMPY", two version bytes, the length of the rest (2 bytes, 4 from version 2
/// on), and a Python dictionary such as {'descr': '<u2', 'fortran_order': False, 'shape': (3, 4), }
struct NpyHeader {
  DType dtype = DType::u16;
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes from the start of the file
};

/// An element type: its name in headers ("<u2") and the bytes of one element.
struct NpyType {
  std::string_view name;
  int64_t bytes;
};

/// The header of an array whose element type need not be a DType.
struct NpyArray {
  NpyType type;  // one of the requested types
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // bytes from the start of the file
};

/// The longest header that is accepted. NumPy's own headers take 128 bytes.
inline constexpr int64_t kMaxNpyHeaderBytes = 4096;

/// Returns whether a file begins with the magic of .npy files.
bool has_npy_magic(std::span<const std::byte> head);

/// Reads and checks the header of a file with elements of one of `types`. See parse_npy_header().
NpyArray parse_npy_array(std::span<const std::byte> head, int64_t file_bytes,
                         const std::string& name, std::span<const NpyType> types);

/// Returns the .npy name of an element type ("<u2"). Throws Error for bf16, which NumPy does not
/// have, and for f16, which we neither read nor write.
std::string npy_type_name(DType dtype);

/// Reads and checks a file's header. `head` is the start of the file: the first
/// kMaxNpyHeaderBytes, or the whole file if it is shorter. `file_bytes` is the file's size, and
/// `name` names it in errors. Throws Error when the header is malformed, in Fortran order, or of an
/// element type that we do not read, and when the size of the data does not match the shape.
NpyHeader parse_npy_header(std::span<const std::byte> head, int64_t file_bytes,
                           const std::string& name);

/// Returns the header, version 1.0, that we write for a [rows, columns] array in C order.
std::string npy_header(DType dtype, int64_t rows, int64_t columns);

}  // namespace tessera
