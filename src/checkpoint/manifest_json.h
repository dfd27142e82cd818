#pragma once

#include <string>

#include "checkpoint/checkpoint_manifest.h"

namespace tessera {

/// The manifest as JSON of format version 2, without the line of its hash. Throws Error, which
/// begins with `origin`, if a name or a value is not UTF-8.
std::string manifest_text(const CheckpointManifest& manifest, const std::string& origin);

/// Which tensors a manifest describes.
enum class ManifestPart {
  whole,       ///< of a checkpoint: the pieces of each tensor cover it
  one_writer,  ///< what one of its writers has written
};

/// Reads a manifest of any format version. Throws Error, which begins with `origin`, saying what is
/// wrong.
CheckpointManifest parse_manifest(const std::string& text, const std::string& origin,
                                  ManifestPart part = ManifestPart::whole);

}  // namespace tessera
