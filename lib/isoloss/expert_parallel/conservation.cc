#include "isoloss/expert_parallel/conservation.h"

namespace isoloss::expert_parallel {
Conservation::Conservation(transport::RankRange local, size_t ranks)
    : first_(static_cast<size_t>(local.first)),
      balance_(static_cast<size_t>(local.size()), ranks),
      of_operation_(static_cast<size_t>(local.size()),
                    kOperations.size() * ranks) {}

}  // namespace isoloss::expert_parallel
