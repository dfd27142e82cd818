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

/// Whether a file begins as .npy files do.
bool has_npy_magic(std::span<const std::byte> file);

/// Reads and checks the header of a file whose elements are of one of `types`; see
/// parse_npy_header().
NpyArray parse_npy_array(std::span<const std::byte> file, const std::string& name,
                         std::span<const NpyType> types);

/// The .npy name of an element type ("<u2"); throws Error for bf16, which NumPy does not know.
std::string npy_type_name(DType dtype);

/// Reads and checks a file's header. `file` is the whole file, `name` stands in errors. Throws
/// Error when it is malformed, in Fortran order, of an element type that we do not read, or when
/// the size of the data is not what the shape says.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& name);

/// Writes a [rows, columns] array in C order, its rows appended one after another. The file appears
/// under its name only with commit().
class NpyWriter {
 public:
  /// Throws Error when the file cannot be created.
  NpyWriter(fs::path path, DType dtype, int64_t columns);

  /// Appends whole rows: a multiple of columns * dtype_size bytes, little-endian.
  void append(std::span<const std::byte> rows);
  template <typename T>
  void append_values(std::span<const T> values) {
    append(std::as_bytes(values));
  }
  int64_t rows() const { return rows_; }
  /// Writes the number of rows into the header and puts the file in its place.
  void commit();

 private:
  std::string header() const;

  DType dtype_;
  int64_t columns_;
  int64_t rows_ = 0;
  AtomicFile file_;
};

}  // namespace tessera
