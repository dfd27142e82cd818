#pragma once

#include <string>

#include "config/run_config.h"
#include "hardware/tuned_products_file.h"
#include "program/runtime.h"

namespace tessera {

/// Reads the table of tuned matrix products that run.tuned_products names, if it names one. The
/// runtime's products then use the table's algorithms and libraries. Call it before the first
/// product. Products that the table lacks are logged once. Throws Error if the table cannot be read
/// or does not fit the runtime's device.
void use_tuned_products(const RunConfig& config, Runtime& runtime);
/// Makes the runtime's products use a table. Throws Error, which names `origin`, if the table was
/// made with another version of the library or on another device, or if the runtime's device has no
/// algorithms to choose from.
void use_tuned_products(Runtime& runtime, TunedTable&& table, const std::string& origin);

/// Throws Error, which names `origin`, if the table was made with another library than `library` or
/// on another device than `device`.
void require_same_library(const TunedTable& table, const std::string& library,
                          const std::string& device, const std::string& origin);

}  // namespace tessera
