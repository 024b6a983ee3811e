#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runlog/read_mutations.h"

namespace isoloss::runlog::sealed_mutations_test {
namespace {

// ISOLOSS_SEALED_MUTATIONS: how many; 6000 take some minutes.
TEST(SealedMutations, AreReadOrRefused) {
  const char* wanted = std::getenv("ISOLOSS_SEALED_MUTATIONS");
  ReadMutations(41, wanted == nullptr ? 1000 : std::stoul(wanted));
}

}  // namespace
}  // namespace isoloss::runlog::sealed_mutations_test
