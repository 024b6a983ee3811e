#include "isoloss/expert_parallel/conservation.h"

namespace isoloss::expert_parallel {

Conservation::Conservation(transport::RankRange local, size_t ranks)
    : first_(static_cast<size_t>(local.first)),
      ranks_(ranks),
      balance_(static_cast<size_t>(local.size()), kOperations.size() * ranks) {}

}  // namespace isoloss::expert_parallel
