#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {

/// The message of the Error that `action` throws; the test fails when it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an Error";
  return "";
}

}  // namespace tessera
