// Declares options of commands, so that one file compiles the header of CLI11
// for all commands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace isoloss::cli {

/// No option may name more steps.
inline constexpr int64_t kMostSteps = 1'000'000'000;

/// Returns `value` as a message shows it: at most 60 characters, the rest as
/// "...".
std::string ShownValue(const std::string& value);

/// An option that has been declared, to which rules are added. Rules name only
/// options that were declared before.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}

  const Option& Required() const;
  const Option& Needs(const std::string& other) const;
  const Option& Excludes(const std::string& other) const;
  /// If this option is given, `required` need not be given.
  const Option& Waives(const Option& required) const;
  /// Takes exactly `values` values.
  const Option& Count(int values) const;
  /// A list takes one value each time that its option is given.
  const Option& Repeatable() const;
  /// One word may hold several values of a list, between commas.
  const Option& SplitAtCommas() const;
  /// Accepts integers from `low` to `high`.
  const Option& IntegerIn(int64_t low, int64_t high) const;
  /// Accepts finite numbers from `low` to `high`.
  const Option& NumberIn(double low, double high) const;
  const Option& OneOf(std::vector<std::string> words) const;
  /// Sets the name that help gives the value.
  const Option& TypeName(const std::string& name) const;
  /// Leaves the option out of help.
  const Option& Hidden() const;
  /// Shows in help the value that the variable has now.
  const Option& ShowDefault() const;

 private:
  CLI::Option& option_;
};

/// `name` is "--name", or "name" for a positional argument. Parsing stores the
/// values in `value`, whose type must be one of the list in arguments.cc. A
/// path must not be empty.
template <typename T>
Option AddOption(CLI::App& app, const std::string& name, T& value,
                 const std::string& help);
Option AddFlag(CLI::App& app, const std::string& name, bool& value,
               const std::string& help);

/// Help begins with `text` instead of the command's summary.
void Describe(CLI::App& app, const std::string& text);

}  // namespace isoloss::cli
