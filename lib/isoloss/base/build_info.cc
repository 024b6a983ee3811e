#include "isoloss/base/build_info.h"

#include "isoloss_commit.h"

namespace isoloss {

BuildInfo GetBuildInfo() {
  return {ISOLOSS_VERSION, ISOLOSS_COMMIT, ISOLOSS_COMPILER};
}

}  // namespace isoloss
