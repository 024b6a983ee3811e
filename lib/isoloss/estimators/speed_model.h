// How much faster a training step is whose GEMMs are partly quantised: a model
// of operations, bytes and exchange on named hardware. docs/studies.md has its
// predictions.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace isoloss::estimators {

/// fprop, dgrad and wgrad.
inline constexpr size_t kProductRoles = 3;
inline constexpr std::array<const char*, kProductRoles> kProductRoleNames = {
    "fprop", "dgrad", "wgrad"};

/// The work of one product of one kind of site for one token of a training
/// step, in all layers together. Activations are recomputed (full
/// checkpointing), so that fprop counts twice.
struct ProductWork {
  double flops = 0;
  /// Values of its two operands. A weight is shared by the tokens that are
  /// multiplied with it at a time.
  double left_elements = 0;
  double right_elements = 0;
};

/// Sites of one name in all layers: "attention.wq".
struct KindWork {
  std::string kind;
  std::array<ProductWork, kProductRoles> products = {};
};

/// A model as the speed model sees it.
struct ModelWork {
  std::string name;
  std::vector<KindWork> kinds = {};
  size_t moe_layers = 0;
  size_t dim = 0;
  size_t experts = 0;
  size_t top_k = 0;

  /// Null if the model has no such kind.
  const ProductWork* Find(const std::string& kind, size_t product) const;
  double Flops() const;
  /// Bytes of all operands in BF16.
  double OperandBytes() const;
};

inline constexpr double kHighPrecisionBits = 16;

/// Bits that a value of either operand takes with its share of the scales, and
/// those of the wider element, which the tensor cores multiply.
struct ProductFormat {
  double left_bits = kHighPrecisionBits;
  double right_bits = kHighPrecisionBits;
  int multiply_bits = 16;
};
/// E4M3 with a scale of 8 bits for 32 values.
inline constexpr ProductFormat kMxfp8 = {8.25, 8.25, 8};

/// A product that is quantised.
struct QuantizedProduct {
  std::string kind;
  size_t role = 0;
  ProductFormat format = {};
};

/// A quantised product's share of a model.
struct ModelShare {
  std::string model;
  double flops = 0;        ///< of the operations of all products
  double bytes_saved = 0;  ///< of the bytes of all operands in BF16
};
/// Special  0 of what the model lacks.
ModelShare ShareOfModel(const ModelWork& model,
                        const QuantizedProduct& product);

/// One GPU and what joins it to others.
struct Hardware {
  const char* name;
  double bf16_flops;     ///< a second, dense
  double memory_bytes;   ///< a second
  double network_bytes;  ///< a second, of its network adapter, one way
  size_t ranks_per_node;
};
/// HGX B200: 2250 TFLOP/s of BF16, dense, twice that of FP8 and FP6 and four
/// times that of FP4 (NVIDIA's data sheet). Memory: 7.672 TB/s (pytorch/ao
/// 4002). One adapter of 400 Gbit/s for each GPU.
inline constexpr Hardware kB200 = {"B200", 2250e12, 7.672e12, 50e9, 8};

/// Nobody has published these figures of the run.
struct SpeedAssumptions {
  /// The share of the peak that GEMMs reach, of either precision. Assumed.
  double gemm_share = 0.68;
  /// The share of the memory's rate that quantising kernels reach: 85 % and
  /// more but for 3-D weights (pytorch/ao 3379).
  double memory_share = 0.85;
  /// Ranks that share the experts, on 4 nodes (docs/sources.md).
  size_t expert_ranks = 32;
  /// Dispatch and combine, forward, recomputed and backward.
  double transfers = 6;
  double bytes_per_value = 2;
};

/// How rows travel to experts.
enum class Dispatch {
  kStandard,  ///< a copy of a token's row for each of its experts
  kDeepep,    ///< one for each node that has one of them
};

/// Where the experts of one token are.
enum class Spread {
  kRandom,   ///< drawn without replacement
  kOneRank,  ///< all on one, as forced balance in turn has them
};

/// A figure of the published run of 671B on 256 B200 (docs/sources.md).
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

/// The model's prediction of a published run.
struct SpeedTry {
  PublishedRun run = {};
  bool fitted = false;
  double predicted = 0;           ///< tokens a second
  double predicted_one_rank = 0;  ///< the same with Spread::kOneRank
};

/// Seconds of a token on one GPU:
///   GEMMs     operations / (share of peak * peak of the wider operand)
///   casts     bytes that are read and written to quantise / memory's rate
///   exchange  rows that leave the node / the adapter's rate
///   rest      attention, optimizer, waiting, and all else: what the run in
///             BF16 with standard dispatch takes beyond the first three
/// Nothing overlaps.
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

  /// The time that quantising one product saves; negative if its casts take
  /// longer than its GEMM gains. Special: 0 of what the model lacks.
  double SavedSeconds(const QuantizedProduct& product) const;
  double TokensPerSecond(Dispatch dispatch,
                         std::span<const QuantizedProduct> products,
                         Spread spread = Spread::kRandom) const;
  /// Against BF16, both with DeepEP.
  double SpeedUp(std::span<const QuantizedProduct> products) const;
  /// All three published runs.
  std::vector<SpeedTry> Tries() const;

 private:
  double FlopsPerSecond(int multiply_bits) const;

  ModelWork work_;
  Hardware hardware_;
  SpeedAssumptions assumptions_;
  double rest_ = 0;
};

}  // namespace isoloss::estimators
