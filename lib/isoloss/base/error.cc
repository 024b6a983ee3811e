#include "isoloss/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace isoloss {

const char* ErrorKindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kShape:
      return "shape";
    case ErrorKind::kConfig:
      return "config";
    case ErrorKind::kFormat:
      return "format";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kTransport:
      return "transport";
    case ErrorKind::kDevice:
      return "device";
  }
  return "unknown";
}

void AssertionFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion `%s` failed\n", file, line,
               expression);
  std::abort();
}

}  // namespace isoloss
