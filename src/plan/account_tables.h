#pragma once

#include <string>

#include "plan/step_account.h"

namespace tessera {

/// The account as tables for a terminal.
std::string account_text(const StepAccount& account);

/// The same as one JSON object; times in seconds, rates not written out.
std::string account_json(const StepAccount& account);

}  // namespace tessera
