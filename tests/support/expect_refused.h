// What is refused, and by which words.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "isoloss/base/error.h"

namespace isoloss::test_support {

/// Expects a ConfigError that holds `words`.
inline void ExpectRefused(const std::function<void()>& act,
                          const std::string& words) {
  try {
    act();
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
  }
}

}  // namespace isoloss::test_support
