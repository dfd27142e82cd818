#pragma once

namespace tessera {

/// The coefficients of Keller Jordan's polynomial of the fifth degree. Five steps bring singular
/// values between about 0.002 and 1 to between about 0.7 and 1.2.
inline constexpr double kNewtonSchulzA = 3.4445;
inline constexpr double kNewtonSchulzB = -4.7750;
inline constexpr double kNewtonSchulzC = 2.0315;
/// What is added to the norm that a matrix is divided by.
inline constexpr double kNewtonSchulzLeast = 1e-7;

}  // namespace tessera
