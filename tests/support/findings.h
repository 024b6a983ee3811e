// What an integrity rule finds, as a matcher.
#pragma once

#include <gmock/gmock.h>

#include "isoloss/compare/integrity.h"

namespace isoloss::test_support {

/// A Finding of this severity whose message holds `text`.
MATCHER_P2(Finds, severity, text, "") {
  return arg.severity == severity &&
         ::testing::Value(arg.message, ::testing::HasSubstr(text));
}

}  // namespace isoloss::test_support
