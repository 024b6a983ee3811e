#include "isoloss/system/exit_code.h"

namespace isoloss::system {

const char* OutcomeName(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return "PASS";
    case ExitCode::kFail:
      return "FAIL";
    case ExitCode::kInconclusive:
      return "INCONCLUSIVE";
    default:
      return "INVALID";
  }
}

document::Status StatusOf(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return document::Status::kPass;
    case ExitCode::kFail:
      return document::Status::kFailure;
    case ExitCode::kInconclusive:
      return document::Status::kInconclusive;
    default:
      return document::Status::kError;
  }
}

}  // namespace isoloss::system
