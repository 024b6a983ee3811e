// How isoloss reports that an operation cannot go on.
//
// Message form: where: what was given, with numbers, but the rule. The remedy.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace isoloss {

/// Says which kind of rule was broken.
enum class ErrorKind {
  kShape,      ///< an array has the wrong extent
  kConfig,     ///< an option or experiment file breaks a stated rule
  kFormat,     ///< bytes are not what their format promises
  kIo,         ///< the operating system refused a file operation
  kTransport,  ///< ranks could not exchange messages
  kDevice,     ///< a device reported an error
};

/// Returns "shape", "config", "format", "io", "transport" or "device".
const char* ErrorKindName(ErrorKind kind);

/// The caller broke a stated rule, or input is unreadable. A broken rule of our
/// own is ISOLOSS_ASSERT; a run that diverged or holds NaN is a finding, never
/// an exception. Only tools/isoloss/main.cc catches it for good.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Throws an Error whose message is formatted as by fmt::format.
template <typename... Args>
[[noreturn]] void ThrowError(ErrorKind kind, fmt::format_string<Args...> format,
                             Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Prints "file:line: assertion `expression` failed" and aborts.
[[noreturn]] void AssertionFailed(const char* expression, const char* file,
                                  int line);

}  // namespace isoloss

/// Checks a rule of our own in every build type: a wrong number is worse than a
/// stopped program.
#define ISOLOSS_ASSERT(expression)     \
  ((expression) ? static_cast<void>(0) \
                : ::isoloss::AssertionFailed(#expression, __FILE__, __LINE__))
