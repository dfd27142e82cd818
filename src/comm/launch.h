#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tessera {

/// The environment variable with the address at which the processes meet without MPI: the first
/// rank's machine and a port.
inline constexpr const char* kAddressVariable = "TESSERA_ADDRESS";

/// The environment variable with the token of a run: a secret by which processes know each other.
inline constexpr const char* kTokenVariable = "TESSERA_TOKEN";
/// A command that prints a new token.
inline constexpr const char* kTokenCommand = "openssl rand -hex 32";

/// A launch of several processes, by a launcher or by the user's hand. This process is one of them.
struct Launch {
  std::string launcher;  ///< "mpirun", "mpiexec" or "srun"; by hand, "TESSERA_RANKS"
  int processes = 1;
  int rank = 0;  ///< of this process; 0 if the environment does not say it
  /// The value of kAddressVariable. Without an address the processes meet by MPI.
  std::optional<std::string> address = {};
  /// The value of kTokenVariable, where there is an address.
  std::optional<std::string> token = {};
};

/// Returns the launch that started this process, as the environment describes it; none if this
/// process was not started as one of several. `variable` returns the value of an environment
/// variable, or null.
///
/// Throws Error that names the variable at fault: a value that is no number of processes, two such
/// numbers that differ, an address without a launch or without this process's rank, a launch by
/// hand without an address, or a token that is too short.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable);
std::optional<Launch> find_launch();

/// Returns the name of this machine.
std::string own_host();

}  // namespace tessera
