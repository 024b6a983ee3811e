#include "isoloss/model/linear.h"

#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using precision::GemmRole;

const formats::MxSpec* SpecOf(const std::optional<formats::MxSpec>& spec) {
  return spec ? &*spec : nullptr;
}

size_t SiteIndex(const precision::ResolvedRecipe& recipe,
                 const std::string& site) {
  for (size_t i = 0; i < recipe.sites().size(); ++i) {
    if (recipe.sites()[i].site == site) return i;
  }
  ThrowError(ErrorKind::kConfig,
             "Linear: `{}` is not among the {} GEMM sites of the resolved "
             "recipe. Resolve the recipe with GemmSites of this model.",
             site, recipe.sites().size());
}

}  // namespace

void GemmQueue::Run() {
  kernels::GemmBatch(problems_, team_);
  for (const kernels::GemmProblem& problem : problems_) {
    ++executed_;
    if (problem.a.mx != nullptr || problem.b.mx != nullptr) ++quantized_;
  }
  problems_.clear();
}

Linear::Linear(LayerContext& context, std::string site,
               std::string_view parameter, size_t groups)
    : context_(context),
      site_(std::move(site)),
      parameter_(context.weights.IndexOf(parameter)),
      groups_(groups),
      out_(context.Weight(parameter_).rows() / groups) {
  const size_t index = SiteIndex(context.recipe, site_);
  fprop_ = &context.recipe.For(index, GemmRole::kFprop);
  dgrad_ = &context.recipe.For(index, GemmRole::kDgrad);
  wgrad_ = &context.recipe.For(index, GemmRole::kWgrad);
  for (const auto* precision : {fprop_, dgrad_, wgrad_}) {
    const auto count = static_cast<int64_t>(groups);
    context.gemms_per_step += count;
    if (precision->quantized()) context.quantized_gemms_per_step += count;
  }
}

void Linear::QueueForward(MatrixView<const float> x, const RowGroups& groups,
                          kernels::Rounding rounding,
                          MatrixView<float> y) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  const MatrixView<const float> weight = context_.Weight(parameter_);
  for (size_t g = 0; g < groups_; ++g) {
    const size_t begin = groups.begins[g];
    const size_t rows = groups.begins[g + 1] - begin;
    context_.gemms.Add({.a = {x.Rows(begin, rows), Contraction::kColumns,
                              SpecOf(fprop_->left)},
                        .b = {weight.Rows(g * out_, out_),
                              Contraction::kColumns, SpecOf(fprop_->right)},
                        .c = y.Rows(begin, rows),
                        .rounding = rounding});
  }
}

void Linear::QueueBackward(MatrixView<const float> x,
                           MatrixView<const float> dy, const RowGroups& groups,
                           MatrixView<float> dx) const {
  ISOLOSS_ASSERT(groups.begins.size() == groups_ + 1);
  ISOLOSS_ASSERT(groups_ == 1 || groups.leaf_ends.empty());
  const MatrixView<const float> weight = context_.Weight(parameter_);
  const MatrixView<float> dweight = context_.Gradient(parameter_);
  for (size_t g = 0; g < groups_; ++g) {
    const size_t begin = groups.begins[g];
    const size_t rows = groups.begins[g + 1] - begin;
    const MatrixView<const float> dy_rows = dy.Rows(begin, rows);
    context_.gemms.Add(
        {.a = {dy_rows, Contraction::kColumns, SpecOf(dgrad_->left)},
         .b = {weight.Rows(g * out_, out_), Contraction::kRows,
               SpecOf(dgrad_->right)},
         .c = dx.Rows(begin, rows),
         .rounding = context_.rounding});
    context_.gemms.Add(
        {.a = {dy_rows, Contraction::kRows, SpecOf(wgrad_->left)},
         .b = {x.Rows(begin, rows), Contraction::kRows, SpecOf(wgrad_->right)},
         .c = dweight.Rows(g * out_, out_),
         .segment_ends = groups.leaf_ends});
  }
}

}  // namespace isoloss::model
