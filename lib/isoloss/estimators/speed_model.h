// Models how much faster a training step is if some of its GEMMs are
// quantised. The model counts operations, bytes and exchange on named
// hardware. docs/studies.md has its predictions.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// The three products of a site are fprop, dgrad and wgrad.
inline constexpr size_t kProductRoles = 3;
inline constexpr std::array<const char*, kProductRoles> kProductRoleNames = {
    "fprop", "dgrad", "wgrad"};

/// The work of one product of one kind of site for one token of a training
/// step, in all layers together. Activations are recomputed (full
/// checkpointing), so that fprop counts twice.
struct ProductWork {
  double flops = 0;
  /// Each operand has this number of values. Tokens that are multiplied with a
  /// weight at a time share its values.
  double left_elements = 0;
  double right_elements = 0;
};

/// A kind is all sites of one name in all layers, such as "attention.wq".
struct KindWork {
  std::string kind;
  std::array<ProductWork, kProductRoles> products = {};
};

/// Describes a model to the speed model.
struct ModelWork {
  std::string name;
  std::vector<KindWork> kinds = {};
  size_t moe_layers = 0;
  size_t dim = 0;
  size_t experts = 0;
  size_t top_k = 0;

  /// Returns null if the model has no such kind.
  const ProductWork* Find(const std::string& kind, size_t product) const;
  double Flops() const;
  /// Returns the bytes of all operands in BF16.
  double OperandBytes() const;
};

inline constexpr double kHighPrecisionBits = 16;

/// A value of an operand takes these bits, with its share of the scales.
/// Tensor cores multiply at the bits of the wider element.
struct ProductFormat {
  double left_bits = kHighPrecisionBits;
  double right_bits = kHighPrecisionBits;
  int multiply_bits = 16;
};
/// MXFP8 is E4M3 with a scale of 8 bits for 32 values.
inline constexpr ProductFormat kMxfp8 = {8.25, 8.25, 8};

struct QuantizedProduct {
  std::string kind;
  size_t role = 0;
  ProductFormat format = {};
};

/// Describes a quantised product's share of a model.
struct ModelShare {
  std::string model;
  double flops = 0;        ///< of the operations of all products
  double bytes_saved = 0;  ///< of the bytes of all operands in BF16
};
/// Special  0 for a product that the model lacks.
ModelShare ShareOfModel(const ModelWork& model,
                        const QuantizedProduct& product);

/// Describes one GPU and its links to further GPUs.
struct Hardware {
  const char* name;
  double bf16_flops;     ///< a second, dense
  double memory_bytes;   ///< a second
  double network_bytes;  ///< a second, of its network adapter, one way
  size_t ranks_per_node;
};
/// HGX B200 reaches 2250 TFLOP/s of dense BF16, twice that of FP8 and FP6 and
/// four times that of FP4 (NVIDIA's data sheet). Its memory reaches 7.672 TB/s
/// (pytorch/ao 4002). Each GPU has one adapter of 400 Gbit/s.
inline constexpr Hardware kB200 = {"B200", 2250e12, 7.672e12, 50e9, 8};

/// Nobody has published these figures of the runs in kPublishedRuns.
struct SpeedAssumptions {
  /// GEMMs of either precision are assumed to reach this share of the peak.
  double gemm_share = 0.68;
  /// Quantising kernels reach this share of the memory's rate: 85 % and more
  /// except for 3-D weights (pytorch/ao 3379).
  double memory_share = 0.85;
  /// These ranks on 4 nodes share the experts (docs/sources.md).
  size_t expert_ranks = 32;
  /// Dispatch and combine each happen forward, recomputed and backward.
  double transfers = 6;
  double bytes_per_value = 2;
};

/// Says how rows travel to experts.
enum class Dispatch {
  kStandard,  ///< a copy of a token's row for each of its experts
  kDeepep,    ///< one for each node that has one of them
};

/// Says where the experts of one token are.
enum class Spread {
  kRandom,   ///< drawn without replacement
  kOneRank,  ///< all on one, as forced balance in turn has them
};

/// Each figure comes from the published run of 671B on 256 B200
/// (docs/sources.md).
struct PublishedRun {
  const char* name;
  Dispatch dispatch;
  bool experts_mxfp8;        ///< all products of the routed experts
  double tokens_per_second;  ///< of one GPU
};
inline constexpr std::array<PublishedRun, 3> kPublishedRuns = {{
    {"BF16", Dispatch::kStandard, false, 651},
    {"BF16 + DeepEP", Dispatch::kDeepep, false, 859},
    {"MXFP8 experts + DeepEP", Dispatch::kDeepep, true, 918},
}};

/// Compares the model's prediction with a published run.
struct SpeedTry {
  PublishedRun run = {};
  bool fitted = false;
  double predicted = 0;           ///< tokens a second
  double predicted_one_rank = 0;  ///< the same with Spread::kOneRank
};

/// Computes the seconds of a token on one GPU as a sum of four parts, none of
/// which overlap:
///   GEMMs     operations / (share of peak * peak of the wider operand).
///   casts     bytes that are read and written to quantise / memory's rate.
///   exchange  rows that leave the node / the adapter's rate.
///   rest      attention, optimizer, waiting, and all else. It is fitted as
///             the time that the run in BF16 with standard dispatch takes
///             beyond the first three parts.
class SpeedModel {
 public:
  /// Fits the rest to the first of kPublishedRuns.
  /// Errors   ConfigError if the first three parts take longer than that run.
  SpeedModel(ModelWork work, const Hardware& hardware,
             const SpeedAssumptions& assumptions);

  const ModelWork& work() const { return work_; }
  const Hardware& hardware() const { return hardware_; }
  const SpeedAssumptions& assumptions() const { return assumptions_; }
  double GemmSeconds() const;  ///< all in BF16
  double ExchangeSeconds(Dispatch dispatch,
                         Spread spread = Spread::kRandom) const;
  double RestSeconds() const { return rest_; }

  /// Returns the time that quantising one product saves. It is negative if the
  /// casts take longer than the GEMM gains.
  /// Special  0 for a product that the model lacks.
  double SavedSeconds(const QuantizedProduct& product) const;
  double TokensPerSecond(Dispatch dispatch,
                         std::span<const QuantizedProduct> products,
                         Spread spread = Spread::kRandom) const;
  /// Returns the speed relative to BF16, both with DeepEP.
  double SpeedUp(std::span<const QuantizedProduct> products) const;
  /// Predicts all three published runs.
  std::vector<SpeedTry> Tries() const;

 private:
  double FlopsPerSecond(int multiply_bits) const;

  ModelWork work_;
  Hardware hardware_;
  SpeedAssumptions assumptions_;
  double rest_ = 0;
};

}  // namespace isoloss::estimators
