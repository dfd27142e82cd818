#pragma once

#include <string>

#include "checkpoint/checkpoint_manifest.h"

namespace tessera {

/// Returns the manifest as JSON of format version 2, without the line of its hash. Throws Error,
/// which begins with `origin`, if a name or a value is not UTF-8.
std::string manifest_text(const CheckpointManifest& manifest, const std::string& origin);

/// The tensors that a manifest describes.
enum class ManifestPart {
  whole,       ///< all of a checkpoint: the pieces of each tensor cover it
  one_writer,  ///< the pieces that one of its writers has written
};

/// Returns the manifest in a text of any format version. Throws Error, which begins with `origin`
/// and says what is wrong.
CheckpointManifest parse_manifest(const std::string& text, const std::string& origin,
                                  ManifestPart part = ManifestPart::whole);

}  // namespace tessera
