#pragma once

#include <string>

#include <gtest/gtest.h>

#include "program/derive.h"

namespace tessera::testing {

/// The message of the DistributionError that `action` throws; the test fails if it throws none.
template <typename Action>
std::string refusal_of(Action&& action) {
  try {
    action();
  } catch (const DistributionError& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a DistributionError";
  return "";
}

/// The same, or "accepted" if it throws none.
template <typename Action>
std::string verdict_of(Action&& action) {
  try {
    action();
  } catch (const DistributionError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace tessera::testing
