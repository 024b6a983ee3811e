#include "isoloss/model/amax_history.h"

#include <algorithm>
#include <utility>

#include "isoloss/expert_parallel/collectives.h"

namespace isoloss::model {
namespace {

using precision::GemmRole;

/// Returns how many steps the products of a site look back for one of its
/// tensors; 0 if no product looks back.
int LengthOf(const precision::ResolvedRecipe& recipe, size_t site,
             SiteTensor tensor) {
  const precision::GemmPrecision& fprop = recipe.For(site, GemmRole::kFprop);
  const precision::GemmPrecision& dgrad = recipe.For(site, GemmRole::kDgrad);
  const precision::GemmPrecision& wgrad = recipe.For(site, GemmRole::kWgrad);
  const auto longer = [](const auto& a, const auto& b) {
    return std::max(a ? a->history : 0, b ? b->history : 0);
  };
  switch (tensor) {
    case SiteTensor::kActivation:
      return longer(fprop.left, wgrad.right);
    case SiteTensor::kWeight:
      return longer(fprop.right, dgrad.right);
    case SiteTensor::kGradient:
      break;
  }
  return longer(dgrad.left, wgrad.left);
}

}  // namespace

AmaxHistory::AmaxHistory(const Graph& graph,
                         std::span<const precision::ResolvedRecipe> recipes) {
  size_t columns = 0;
  int longest = 0;
  for (size_t site = 0; site < graph.sites.size(); ++site) {
    const size_t groups =
        graph.parameters[graph.sites[site].parameter].groups();
    for (const SiteTensor tensor :
         {SiteTensor::kActivation, SiteTensor::kWeight,
          SiteTensor::kGradient}) {
      int length = 0;
      for (const precision::ResolvedRecipe& recipe : recipes) {
        length = std::max(length, LengthOf(recipe, site, tensor));
      }
      if (length == 0) continue;
      entries_.push_back({graph.sites[site].name, tensor, columns});
      columns += groups;
      longest = std::max(longest, length);
    }
  }
  current_.resize(columns);
  values_.Resize(static_cast<size_t>(longest), columns);
}

const AmaxHistory::Entry* AmaxHistory::Find(std::string_view site,
                                            SiteTensor tensor) const {
  for (const Entry& entry : entries_) {
    if (entry.tensor == tensor && entry.site == site) return &entry;
  }
  return nullptr;
}

void AmaxHistory::Note(std::string_view site, SiteTensor tensor, size_t group,
                       float amax) {
  const Entry* entry = Find(site, tensor);
  if (entry == nullptr) return;
  float& noted = current_[entry->first + group];
  noted = tensor == SiteTensor::kWeight ? amax : std::max(noted, amax);
}

std::optional<float> AmaxHistory::Of(std::string_view site, SiteTensor tensor,
                                     size_t group, int length) const {
  const Entry* entry = Find(site, tensor);
  if (entry == nullptr || steps_ == 0 || length == 0) return std::nullopt;
  const size_t kept = std::min(steps_, static_cast<size_t>(length));
  float largest = 0;
  for (size_t back = 1; back <= kept; ++back) {
    const size_t row = (steps_ - back) % values_.rows();
    largest = std::max(largest, values_(row, entry->first + group));
  }
  return largest;
}

void AmaxHistory::BeginPass() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].tensor == SiteTensor::kWeight) continue;
    const size_t end =
        i + 1 < entries_.size() ? entries_[i + 1].first : current_.size();
    std::fill(current_.begin() + static_cast<ptrdiff_t>(entries_[i].first),
              current_.begin() + static_cast<ptrdiff_t>(end), 0.0f);
  }
}

void AmaxHistory::EndStep(const expert_parallel::Mesh& mesh) {
  if (empty()) return;
  const std::vector<double> mine(current_.begin(), current_.end());
  const std::vector<double> all = expert_parallel::Gather(mesh, mine);
  float* const row = values_.Row(steps_ % values_.rows());
  std::fill_n(row, current_.size(), 0.0f);
  for (size_t i = 0; i < all.size(); ++i) {
    float& value = row[i % current_.size()];
    value = std::max(value, static_cast<float>(all[i]));
  }
  ++steps_;
}

}  // namespace isoloss::model
