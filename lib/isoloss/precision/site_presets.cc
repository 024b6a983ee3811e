#include "isoloss/precision/site_presets.h"

#include <algorithm>

namespace isoloss::precision {

std::span<const SitePreset> AllSitePresets() {
  static const std::vector<SitePreset> presets = {
      {"torchtitan_mxfp8",
       {"attention", "feed_forward?", "shared_experts?", "routed_experts?"},
       {"router.gate?", "lm_head?"},
       "torchtitan, deepseek_v3_debugmodel_mxfp8"},
      {"routed_experts",
       {"routed_experts"},
       {},
       "the 671B run of PyTorch and Nebius (docs/sources.md)"},
      {"nebius_16b",
       {"routed_experts?", "feed_forward.w1?", "feed_forward.w3?"},
       {},
       "what the filter of the published 16B run leaves (docs/sources.md)"},
      {"llama4_scout",
       {"attention", "feed_forward?", "shared_experts?", "routed_experts?"},
       {"lm_head?", "router.gate?", "wkv_a?", "wkv_b?"},
       "Llama 4 Scout: no output, gate, wk and wv, which are wkv_a and wkv_b "
       "here (docs/sources.md)"},
      {"all_but_gate_and_head",
       {"layers."},
       {"router.gate?"},
       "every linear layer but the router's gate and the head"},
  };
  return presets;
}

const SitePreset* ReadSitePreset(config::Reader& fields) {
  std::string given;
  std::vector<std::string> names;
  for (const SitePreset& preset : AllSitePresets()) {
    names.push_back(preset.name);
  }
  fields.OneOf("sites", given, names);
  const auto found =
      std::ranges::find(AllSitePresets(), given, &SitePreset::name);
  return found == AllSitePresets().end() ? nullptr : &*found;
}

}  // namespace isoloss::precision
