#include "isoloss/runlog/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace isoloss::runlog {
namespace {

TEST(SchemaMarkdown, StandsInTheDocumentation) {
  std::ifstream file(ISOLOSS_SOURCE_DIR "/docs/run-log.md");

  const std::string documentation{std::istreambuf_iterator<char>(file), {}};

  EXPECT_THAT(documentation, ::testing::HasSubstr(SchemaMarkdown()))
      << "docs/run-log.md lags behind lib/isoloss/runlog/schema.h: paste the "
         "expected text above.";
}

}  // namespace
}  // namespace isoloss::runlog
