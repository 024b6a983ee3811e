#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runlog/read_mutations.h"

namespace isoloss::runlog::sealed_mutations_test {
namespace {

// ISOLOSS_SEALED_MUTATIONS: how many. `tools/test --matrix` tries 6000.
TEST(SealedMutations, AreReadOrRefused) {
  const char* wanted = std::getenv("ISOLOSS_SEALED_MUTATIONS");
  ReadMutations(41, wanted == nullptr ? 400 : std::stoul(wanted));
}

}  // namespace
}  // namespace isoloss::runlog::sealed_mutations_test
