#pragma once

namespace tessera {

/// What the program was compiled to use and this processor does not have: "AVX-512"; null where it
/// has all. Called first of all, since any other code may use it.
const char* missing_processor_feature();

}  // namespace tessera
