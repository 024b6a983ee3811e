#include "isoloss/base/random_token.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>

namespace isoloss {

std::string RandomToken() {
  std::random_device random;
  std::string token;
  for (int word = 0; word < 4; ++word) {
    token += fmt::format("{:08x}", static_cast<uint32_t>(random()));
  }
  return token;
}

}  // namespace isoloss
