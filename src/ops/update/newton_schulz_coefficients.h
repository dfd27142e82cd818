#pragma once

namespace tessera {

/// The coefficients of Keller Jordan's polynomial of the fifth degree. Five steps bring singular
/// values between about 0.002 and 1 to between about 0.7 and 1.2.
inline constexpr double kNewtonSchulzA = 3.4445;
inline constexpr double kNewtonSchulzB = -4.7750;
inline constexpr double kNewtonSchulzC = 2.0315;

}  // namespace tessera
