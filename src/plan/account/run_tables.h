#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "plan/account/run_account.h"

namespace tessera {

/// Returns a time in milliseconds, as tables of accounts have it.
std::string milliseconds(double seconds);

/// Returns the account of all ranks as tables: the passes, the calls of other ranks by axes, and
/// the critical path.
std::string run_account_text(const RunAccount& account);

/// Returns the same as JSON, with all ranks and the whole path. Times are in seconds.
nlohmann::ordered_json run_account_json(const RunAccount& account);

}  // namespace tessera
