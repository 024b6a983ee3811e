// An exchange that passes everything on to another one: mutants change what
// they are about.
#pragma once

#include <memory>
#include <utility>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/exchange.h"

namespace isoloss::qualification {

/// The expert row of each (token, slot) of a batch.
class RowMap {
 public:
  explicit RowMap(Matrix<size_t> rows) : rows_(std::move(rows)) {}

  size_t tokens() const { return rows_.rows(); }
  size_t slots() const { return rows_.cols(); }
  size_t operator()(size_t token, size_t slot) const {
    return rows_(token, slot);
  }

 private:
  Matrix<size_t> rows_;
};

class ExchangeProxy : public expert_parallel::Exchange {
 public:
  explicit ExchangeProxy(std::unique_ptr<expert_parallel::Exchange> inner)
      : inner_(std::move(inner)) {}

  void Dispatch(MatrixView<const float> source,
                MatrixView<const int32_t> expert_ids,
                MatrixView<const float> weights) override {
    expert_ids_ = expert_ids;
    weights_ = weights;
    inner_->Dispatch(source, expert_ids, weights);
  }
  MatrixView<const float> expert_in() const override {
    return inner_->expert_in();
  }
  std::span<const size_t> expert_begins() const override {
    return inner_->expert_begins();
  }
  std::span<const size_t> unit_ends() const override {
    return inner_->unit_ends();
  }
  std::span<const size_t> unit_rows() const override {
    return inner_->unit_rows();
  }
  std::span<const float> row_weights() const override {
    return inner_->row_weights();
  }
  std::span<float> row_weight_gradients() override {
    return inner_->row_weight_gradients();
  }
  void Combine(MatrixView<const float> expert_out,
               MatrixView<float> out) override {
    inner_->Combine(expert_out, out);
  }
  void CombineBackward(MatrixView<const float> dout,
                       MatrixView<float> expert_out) override {
    inner_->CombineBackward(dout, expert_out);
  }
  MatrixView<const float> ReturnGradients(
      MatrixView<const float> dexpert_in) override {
    return inner_->ReturnGradients(dexpert_in);
  }
  void DispatchBackward(MatrixView<const float> addend,
                        MatrixView<float> dsource) override {
    inner_->DispatchBackward(addend, dsource);
  }
  std::span<const int64_t> tokens_per_expert() const override {
    return inner_->tokens_per_expert();
  }
  const expert_parallel::DispatchCounts& counts() const override {
    return inner_->counts();
  }

 protected:
  // As the last Dispatch got them, [T, K].
  MatrixView<const int32_t> expert_ids() const { return expert_ids_; }
  MatrixView<const float> weights() const { return weights_; }
  /// Of the last Dispatch.
  /// Errors   ConfigError if other processes have tokens or experts of it.
  RowMap MapRows() const;

 private:
  std::unique_ptr<expert_parallel::Exchange> inner_;
  MatrixView<const int32_t> expert_ids_;
  MatrixView<const float> weights_;
};

}  // namespace isoloss::qualification
