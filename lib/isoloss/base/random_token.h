// A word that nobody can guess.
#pragma once

#include <string>

namespace isoloss {

/// 32 hexadecimal digits, 128 bits of the system's randomness. It must never
/// reach a log, whose bits depend on the experiment alone.
std::string RandomToken();

}  // namespace isoloss
