#pragma once

#include <string>

#include "plan/account/step_account.h"

namespace tessera {

/// Returns the account as tables for a terminal.
std::string account_text(const StepAccount& account);

/// Returns the account as one JSON object. Times are in seconds; rates are not written.
std::string account_json(const StepAccount& account);

}  // namespace tessera
