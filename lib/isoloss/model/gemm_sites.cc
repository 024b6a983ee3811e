#include "isoloss/model/gemm_sites.h"

#include <fmt/format.h>

namespace isoloss::model {

std::vector<std::string> GemmSites(const ModelConfig& config) {
  std::vector<std::string> sites;
  for (size_t n = 0; n < config.n_layers; ++n) {
    const std::string layer = "layers." + std::to_string(n);
    const auto add_feed_forward = [&](const std::string& name) {
      for (const char* matrix : {"w1", "w3", "w2"}) {
        sites.push_back(fmt::format("{}.{}.{}", layer, name, matrix));
      }
    };
    if (config.q_lora_rank == 0) {
      sites.push_back(layer + ".attention.wq");
    } else {
      sites.push_back(layer + ".attention.wq_a");
      sites.push_back(layer + ".attention.wq_b");
    }
    for (const char* matrix : {"wkv_a", "wkv_b", "wo"}) {
      sites.push_back(layer + ".attention." + matrix);
    }
    if (config.IsMoeLayer(n)) {
      sites.push_back(layer + ".moe.router.gate");
      add_feed_forward("moe.routed_experts");
      if (config.num_shared_experts > 0) add_feed_forward("moe.shared_experts");
    } else {
      add_feed_forward("feed_forward");
    }
  }
  sites.emplace_back("lm_head");
  return sites;
}

}  // namespace isoloss::model
