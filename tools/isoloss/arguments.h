// Rules for the values of options, one wording for all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace isoloss::cli {

/// The most steps that an option may name.
inline constexpr int64_t kMostSteps = 1'000'000'000;

/// `value` as a message shows it: at most 60 characters, the rest as "...".
std::string ShownValue(const std::string& value);

/// Accepts integers from `low` to `high`.
CLI::Validator IntegerIn(int64_t low, int64_t high);

/// Accepts finite numbers from `low` to `high`.
CLI::Validator NumberIn(double low, double high);

/// Accepts one of `words`.
CLI::Validator OneOf(std::vector<std::string> words);

}  // namespace isoloss::cli
