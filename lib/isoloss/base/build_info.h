// Identifies this program for logs and --version.
#pragma once

#include <string>

namespace isoloss {

struct BuildInfo {
  std::string version;   ///< "0.9.0"
  std::string commit;    ///< git describe, "-dirty" if modified, or "unknown"
  std::string compiler;  ///< "GNU 12.2.0"
};

BuildInfo GetBuildInfo();

}  // namespace isoloss
