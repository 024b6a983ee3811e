#include "isoloss/inspection/parity_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace isoloss::inspection {

document::Json ParityJson(const train::ParityReport& found) {
  document::Json json{{"outcome", found.first ? "FAIL" : "PASS"},
                      {"arm", found.arm},
                      {"seed", found.seed},
                      {"ranks", found.ranks},
                      {"expert_data_parallel", found.replicas},
                      {"transport", found.transport},
                      {"processes", found.processes},
                      {"steps", found.steps},
                      {"gradients_per_step", found.gradients},
                      {"first_difference", nullptr}};
  if (found.first) {
    document::Json first{{"step", found.first->step},
                         {"what", found.first->what},
                         {"of_tensor", found.first->of_tensor}};
    document::PutNumber(first, "one_rank", found.first->one_rank);
    document::PutNumber(first, "meshed", found.first->meshed);
    first["process"] = found.first->process;
    first["message"] = found.first->Describe();
    json["first_difference"] = std::move(first);
  }
  return json;
}

}  // namespace isoloss::inspection
