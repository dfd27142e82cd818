// Each case of a property of operations runs whole programs, many of them on the emulated device.
#include <cstdlib>

namespace tessera::testing {
namespace {

/// 30 cases a run and not RapidCheck's 100: other ones in each run. RC_PARAMS in the environment
/// counts before this.
[[maybe_unused]] const int kSet = ::setenv("RC_PARAMS", "max_success=30", /*overwrite=*/0);

}  // namespace
}  // namespace tessera::testing
