// Options of commands: declared here, so that one file compiles the header of
// CLI11 for all commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace isoloss::cli {

/// The most steps that an option may name.
inline constexpr int64_t kMostSteps = 1'000'000'000;

/// `value` as a message shows it: at most 60 characters, the rest as "...".
std::string ShownValue(const std::string& value);

/// An option that has been declared, to add rules to. Other options are named
/// as they were declared, which comes first.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}

  const Option& Required() const;
  const Option& Needs(const std::string& other) const;
  const Option& Excludes(const std::string& other) const;
  /// Where this one is given, `required` need not be.
  const Option& Waives(const Option& required) const;
  /// Takes so many values.
  const Option& Count(int values) const;
  /// Of a list: takes one value each time that it is given.
  const Option& Repeatable() const;
  /// Of a list: one word may hold several values, between commas.
  const Option& SplitAtCommas() const;
  /// Accepts integers from `low` to `high`.
  const Option& IntegerIn(int64_t low, int64_t high) const;
  /// Accepts finite numbers from `low` to `high`.
  const Option& NumberIn(double low, double high) const;
  const Option& OneOf(std::vector<std::string> words) const;
  /// What help calls the value.
  const Option& TypeName(const std::string& name) const;
  /// Help leaves it out.
  const Option& Hidden() const;
  /// Help names the value that the variable has now.
  const Option& ShowDefault() const;

 private:
  CLI::Option& option_;
};

/// `name` is "--name", or "name" of what stands without one. The values are
/// stored in `value` when the command line is parsed; for the types that
/// arguments.cc lists. A path must not be empty.
template <typename T>
Option AddOption(CLI::App& app, const std::string& name, T& value,
                 const std::string& help);
Option AddFlag(CLI::App& app, const std::string& name, bool& value,
               const std::string& help);

/// In place of the command's summary.
void Describe(CLI::App& app, const std::string& text);

}  // namespace isoloss::cli
