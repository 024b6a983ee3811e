// Errors on the way of tokens to experts and back, and in the experts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "qualification/engine.h"
#include "qualification/exchange_proxy.h"
#include "qualification/groups.h"

namespace isoloss::qualification {
namespace {

using expert_parallel::Exchange;
using precision::GemmRole;

/// What the mutants of one layer's exchange need to decide.
struct ExchangeSite {
  size_t layer;
  uint64_t seed;
  std::shared_ptr<const RunClock> clock;

  CounterRng Rng(std::string_view stream) const {
    return {seed, StreamId(stream)};
  }
  uint64_t IndexOf(size_t item) const {
    return (static_cast<uint64_t>(clock->step) << 8 | layer) << 32 | item;
  }
};

/// Wraps every layer's exchange in a `Proxy`(inner, site).
template <typename Proxy>
void Decorate(MutantContext& context) {
  context.hooks.decorate_exchange =
      [seed = context.seed, clock = context.clock](
          size_t layer,
          std::unique_ptr<Exchange> inner) -> std::unique_ptr<Exchange> {
    return std::make_unique<Proxy>(std::move(inner),
                                   ExchangeSite{layer, seed, clock});
  };
}

/// A proxy that edits a copy of the experts' outputs before they are combined.
class EditedOutputs : public ExchangeProxy {
 public:
  EditedOutputs(std::unique_ptr<Exchange> inner, ExchangeSite site)
      : ExchangeProxy(std::move(inner)), site_(std::move(site)) {}

  void Combine(MatrixView<const float> expert_out,
               MatrixView<float> out) override {
    outputs_.ResizeUninitialized(expert_out.rows(), expert_out.cols());
    for (size_t row = 0; row < expert_out.rows(); ++row) {
      std::copy_n(expert_out.Row(row), expert_out.cols(), outputs_.Row(row));
    }
    Edit(outputs_);
    ExchangeProxy::Combine(outputs_.view(), out);
  }

 protected:
  virtual void Edit(Matrix<float>& outputs) = 0;
  const ExchangeSite& site() const { return site_; }

 private:
  ExchangeSite site_;
  Matrix<float> outputs_;
};

/// One combine in 32 takes one row from the row's neighbour.
class CorruptRow : public EditedOutputs {
 public:
  using EditedOutputs::EditedOutputs;

 private:
  void Edit(Matrix<float>& outputs) override {
    constexpr uint64_t kEvery = 32;
    const CounterRng rng = site().Rng("mutants/corrupt_row");
    const auto number = static_cast<uint64_t>(site().clock->step);
    const uint64_t run = number / kEvery << 8 | site().layer;
    if (number % kEvery != rng.Below(run, kEvery) || outputs.rows() < 2) return;
    const size_t row = rng.Below(site().IndexOf(0), outputs.rows() - 1);
    std::copy_n(outputs.Row(row + 1), outputs.cols(), outputs.Row(row));
  }
};

/// What 1 % of the tokens sent to their first expert does not come back.
class TokenDrop : public EditedOutputs {
 public:
  using EditedOutputs::EditedOutputs;

  void CombineBackward(MatrixView<const float> dout,
                       MatrixView<float> expert_out) override {
    DropRows(expert_out);
    EditedOutputs::CombineBackward(dout, expert_out);
    DropRows(expert_out);
  }

 private:
  void Edit(Matrix<float>& outputs) override { DropRows(outputs.view()); }

  void DropRows(MatrixView<float> outputs) const {
    const CounterRng rng = site().Rng("mutants/token_drop");
    const RowMap rows = MapRows();
    for (size_t t = 0; t < rows.tokens(); ++t) {
      if (rng.Below(site().IndexOf(t), 100) != 0) continue;
      std::fill_n(outputs.Row(rows(t, 0)), outputs.cols(), 0.0f);
    }
  }
};

/// The last row of every expert is added twice.
class LastTokenDuplicated : public EditedOutputs {
 public:
  using EditedOutputs::EditedOutputs;

 private:
  void Edit(Matrix<float>& outputs) override {
    const std::span<const size_t> begins = expert_begins();
    for (size_t e = 0; e + 1 < begins.size(); ++e) {
      if (begins[e] == begins[e + 1]) continue;
      float* const row = outputs.Row(begins[e + 1] - 1);
      for (size_t i = 0; i < outputs.cols(); ++i) row[i] *= 2;
    }
  }
};

/// The sum over slots is rounded to BF16 after every slot.
class Bf16Unpermute : public ExchangeProxy {
 public:
  Bf16Unpermute(std::unique_ptr<Exchange> inner, const ExchangeSite& /*site*/)
      : ExchangeProxy(std::move(inner)) {}

  void Combine(MatrixView<const float> expert_out,
               MatrixView<float> out) override {
    ExchangeProxy::Combine(expert_out, out);
    const RowMap rows = MapRows();
    for (size_t t = 0; t < rows.tokens(); ++t) {
      for (size_t i = 0; i < out.cols(); ++i) {
        float sum = 0;
        for (size_t k = 0; k < rows.slots(); ++k) {
          sum = formats::RoundToBf16(
              sum + formats::RoundToBf16(weights()(t, k) *
                                         expert_out(rows(t, k), i)));
        }
        out(t, i) = sum;
      }
    }
  }
};

/// Rows between the experts' lists hold what was in memory.
class Padding : public ExchangeProxy {
 public:
  Padding(std::unique_ptr<Exchange> inner, float garbage)
      : ExchangeProxy(std::move(inner)), garbage_(garbage) {}

  void Dispatch(MatrixView<const float> source,
                MatrixView<const int32_t> expert_ids,
                MatrixView<const float> weights) override {
    ExchangeProxy::Dispatch(source, expert_ids, weights);
    const MatrixView<const float> arrived = ExchangeProxy::expert_in();
    const RowMap rows = MapRows();
    expert_in_.ResizeUninitialized(arrived.rows(), arrived.cols());
    std::fill_n(expert_in_.data(), expert_in_.size(), garbage_);
    for (size_t t = 0; t < rows.tokens(); ++t) {
      for (size_t k = 0; k < rows.slots(); ++k) {
        std::copy_n(arrived.Row(rows(t, k)), arrived.cols(),
                    expert_in_.Row(rows(t, k)));
      }
    }
  }
  MatrixView<const float> expert_in() const override {
    return expert_in_.view();
  }

 private:
  float garbage_;
  Matrix<float> expert_in_;
};

/// Large beside activations.
class UninitialisedPadding : public Padding {
 public:
  UninitialisedPadding(std::unique_ptr<Exchange> inner,
                       const ExchangeSite& /*site*/)
      : Padding(std::move(inner), 1e4f) {}
};

class NanPadding : public Padding {
 public:
  NanPadding(std::unique_ptr<Exchange> inner, const ExchangeSite& /*site*/)
      : Padding(std::move(inner), std::numeric_limits<float>::quiet_NaN()) {}
};

/// dx keeps what the gate's half gave.
void UpHalfOfDxLost(MutantContext& context) {
  context.hooks.gemm_engine =
      MakeEngine({.touches =
                      [](const model::GemmTask& task) {
                        return task.role == GemmRole::kDgrad &&
                               AtSite(task, "routed_experts.w3");
                      },
                  .product = [](const Product& /*adds nothing*/) {}});
}

/// Calls `edit` with w2's gradient of the model's first expert, [D * F].
template <typename Edit>
void EditFirstW2Gradient(MutantContext& context, Edit edit) {
  context.hooks.after_backward = [edit](int64_t step,
                                        model::ParameterSet& gradients) {
    for (model::Parameter& gradient : gradients.parameters()) {
      if (!gradient.name.ends_with("w2_EDF") || gradient.first_element != 0) {
        continue;
      }
      edit(step, std::span(gradient.values.data(),
                           gradient.shape[1] * gradient.shape[2]));
    }
  };
}

void ExpertGradientLost(MutantContext& context) {
  EditFirstW2Gradient(context, [](int64_t /*step*/, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0f);
  });
}

void NanInW2Gradient(MutantContext& context) {
  EditFirstW2Gradient(context, [](int64_t step, std::span<float> values) {
    if (step >= 2) values[0] = std::numeric_limits<float>::quiet_NaN();
  });
}

}  // namespace

std::vector<Mutant> ExchangeMutants() {
  const std::string group = "exchange";
  return {
      {.name = "corrupt_row",
       .catalogue = 49,
       .group = group,
       .what = "One combine in 32 takes one row from its neighbour",
       .link = "https://github.com/deepseek-ai/DeepEP/issues/700",
       .note = "which combine and which row follows from seed and step",
       .period = 32,
       .plant = Decorate<CorruptRow>},
      {.name = "token_drop",
       .catalogue = 50,
       .group = group,
       .what = "1 % of tokens get nothing back from their first expert",
       .link = "https://github.com/deepseek-ai/DeepEP/pull/443",
       .plant = Decorate<TokenDrop>},
      {.name = "bf16_unpermute",
       .catalogue = 51,
       .group = group,
       .what =
           "A token's sum over its experts is rounded to BF16 at every slot",
       .link = "https://github.com/NVIDIA/TransformerEngine/issues/1336",
       .plant = Decorate<Bf16Unpermute>},
      {.name = "padding_uninitialised",
       .catalogue = 52,
       .group = group,
       .kind = Class::kEquivalent,
       .what = "Padding rows of experts' lists hold what was in memory",
       .link = "https://github.com/huggingface/transformers/pull/48205",
       .note = "needs an exchange that pads; a bug there",
       .plant = Decorate<UninitialisedPadding>},
      {.name = "padding_nan",
       .catalogue = 53,
       .group = group,
       .kind = Class::kEquivalent,
       .what = "Padding rows of experts' lists are NaN",
       .link = "https://github.com/flashinfer-ai/flashinfer/pull/3650",
       .note = "needs an exchange that pads; a bug there",
       .plant = Decorate<NanPadding>},
      {.name = "up_half_of_dx_lost",
       .catalogue = 54,
       .group = group,
       .what = "The input gradient of routed experts lacks what w3 gives",
       .link = "https://github.com/linkedin/Liger-Kernel/pull/1413",
       .plant = UpHalfOfDxLost},
      {.name = "expert_gradient_lost",
       .catalogue = 56,
       .group = group,
       .what = "w2 of the first expert gets no gradient",
       .link = "",
       .plant = ExpertGradientLost},
      {.name = "last_token_duplicated",
       .catalogue = 57,
       .group = group,
       .what = "The last row of every expert counts twice",
       .link = "",
       .plant = Decorate<LastTokenDuplicated>},
      {.name = "nan_in_w2_gradient",
       .catalogue = 58,
       .group = group,
       .what = "From step 2 on w2's gradient of the first expert has a NaN",
       .link = "https://github.com/marin-community/marin/issues/7271",
       .onset = 2,
       .plant = NanInW2Gradient},
  };
}

}  // namespace isoloss::qualification
