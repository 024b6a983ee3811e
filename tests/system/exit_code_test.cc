#include "isoloss/system/exit_code.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace isoloss::system::exit_code_test {
namespace {

TEST(ExitCode, TheSevererOneIsKept) {
  const ExitCode by_severity[] = {ExitCode::kPass, ExitCode::kInconclusive,
                                  ExitCode::kFail, ExitCode::kInvalid,
                                  ExitCode::kInterrupted};
  for (size_t a = 0; a < std::size(by_severity); ++a) {
    for (size_t b = 0; b < std::size(by_severity); ++b) {
      EXPECT_EQ(Worse(by_severity[a], by_severity[b]),
                by_severity[std::max(a, b)]);
    }
  }
}

}  // namespace
}  // namespace isoloss::system::exit_code_test
