// A manifest in two forms: inspect_checkpoint() makes tables, inspect_checkpoint_json() makes JSON.
// Texts of the manifest are untrusted, so tables print them through printable().

#include "checkpoint/inspect.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/checkpoint_manifest.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct GroupTotal {
  std::string name;
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};

/// Returns the totals of the groups, in order of first appearance.
std::vector<GroupTotal> group_totals(const CheckpointManifest& manifest) {
  std::vector<GroupTotal> totals;
  for (const CheckpointTensor& tensor : manifest.tensors) {
    auto found = totals.begin();
    while (found != totals.end() && found->name != tensor.group) ++found;
    if (found == totals.end()) found = totals.insert(found, {tensor.group});
    ++found->tensors;
    found->elements += tensor.shape.elements();
    found->bytes += tensor.bytes();
  }
  return totals;
}

std::string value_text(const StateValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return printable(std::get<std::string>(value));
}

OrderedJson value_json(const StateValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  const auto* real = std::get_if<double>(&value);
  if (real != nullptr && std::isfinite(*real)) return *real;
  return real != nullptr ? fmt::format("{}", *real) : std::get<std::string>(value);
}

/// Returns the hash of a tensor that has one, else "several".
std::string hash_of(const CheckpointTensor& tensor) {
  const bool has_one = tensor.pieces.size() == 1 && tensor.pieces[0].hashes.size() == 1;
  return has_one ? hash_text(tensor.pieces[0].hashes[0]) : "several";
}

OrderedJson pieces_json(const CheckpointTensor& tensor) {
  OrderedJson pieces = OrderedJson::array();
  for (const SavedPiece& piece : tensor.pieces) {
    OrderedJson region = OrderedJson::array();
    for (const ElementRun& run : piece.region.dims) {
      region.push_back({run.begin, run.begin + run.length});
    }
    OrderedJson hashes = OrderedJson::array();
    for (const uint64_t hash : piece.hashes) hashes.push_back(hash_text(hash));
    pieces.push_back(
        {{"file", piece.file}, {"region", std::move(region)}, {"xxh3", std::move(hashes)}});
  }
  return pieces;
}

/// Returns lines of "name   value". A Table would align the numbers among the values to the right.
std::string summary_text(const fs::path& checkpoint, const CheckpointManifest& manifest) {
  std::vector<std::pair<std::string, std::string>> lines{
      {"checkpoint", checkpoint.string()},
      {"step", fmt::format("{}", manifest.state.step)},
      {"created by", printable(manifest.state.created_by)}};
  for (const auto& [name, value] : manifest.state.values) {
    lines.emplace_back(printable(name), value_text(value));
  }
  size_t width = 0;
  for (const auto& [name, value] : lines) width = std::max(width, name.size());
  std::string result;
  for (const auto& [name, value] : lines) result += fmt::format("{:<{}}  {}\n", name, width, value);
  return result;
}

}  // namespace

std::string inspect_checkpoint(const fs::path& checkpoint) {
  const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
  Table files({"file", "bytes", "xxh3", "of"});
  for (const CheckpointFile& file : manifest.tensor_files) {
    files.add({printable(file.name), fmt::format("{}", file.bytes), file.hash, "header"});
  }
  for (const CheckpointFile& file : manifest.extra_files) {
    files.add({printable(file.name), fmt::format("{}", file.bytes), file.hash, "file"});
  }
  Table tensors({"group", "tensor", "type", "shape", "elements", "bytes", "pieces", "xxh3"});
  for (const CheckpointTensor& tensor : manifest.tensors) {
    tensors.add({printable(tensor.group), printable(tensor.name),
                 std::string(dtype_name(tensor.dtype)), tensor.shape.text(),
                 fmt::format("{}", tensor.shape.elements()), fmt::format("{}", tensor.bytes()),
                 fmt::format("{}", tensor.pieces.size()), hash_of(tensor)});
  }
  Table groups({"group", "tensors", "elements", "bytes", ""});
  GroupTotal all{"total"};
  const auto add_group = [&](const GroupTotal& total) {
    groups.add({printable(total.name), fmt::format("{}", total.tensors),
                fmt::format("{}", total.elements), fmt::format("{}", total.bytes),
                fmt::format("({} elements, {})", format_count(static_cast<double>(total.elements)),
                            format_bytes(total.bytes))});
  };
  for (const GroupTotal& total : group_totals(manifest)) {
    add_group(total);
    all.tensors += total.tensors;
    all.elements += total.elements;
    all.bytes += total.bytes;
  }
  add_group(all);
  return fmt::format("{}\n{}\n{}\n{}", summary_text(checkpoint, manifest), files.text(),
                     tensors.text(), groups.text());
}

std::string inspect_checkpoint_json(const fs::path& checkpoint) {
  const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
  OrderedJson state = OrderedJson::object();
  for (const auto& [name, value] : manifest.state.values) state[name] = value_json(value);
  OrderedJson files = OrderedJson::array();
  for (const CheckpointFile& file : manifest.tensor_files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"header_xxh3", file.hash}});
  }
  for (const CheckpointFile& file : manifest.extra_files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", file.hash}});
  }
  OrderedJson groups = OrderedJson::array();
  for (const GroupTotal& total : group_totals(manifest)) {
    groups.push_back({{"name", total.name},
                      {"tensors", total.tensors},
                      {"elements", total.elements},
                      {"bytes", total.bytes}});
  }
  OrderedJson tensors = OrderedJson::array();
  for (const CheckpointTensor& tensor : manifest.tensors) {
    const auto dims = tensor.shape.dims();
    tensors.push_back({{"group", tensor.group},
                       {"name", tensor.name},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                       {"elements", tensor.shape.elements()},
                       {"bytes", tensor.bytes()},
                       {"pieces", pieces_json(tensor)}});
  }
  // The block size is null if each piece has one hash, however large it is.
  const OrderedJson block_bytes =
      manifest.block_bytes == kOneBlock ? OrderedJson() : OrderedJson(manifest.block_bytes);
  const OrderedJson json = {{"path", checkpoint.string()},
                            {"step", manifest.state.step},
                            {"created_by", manifest.state.created_by},
                            {"state", std::move(state)},
                            {"files", std::move(files)},
                            {"block_bytes", block_bytes},
                            {"groups", std::move(groups)},
                            {"tensors", std::move(tensors)}};
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace tessera
