#include "gemm_clock.h"

#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "measure.h"

// What the linker's option --wrap makes of a name (CMakeLists.txt has the
// names).
#define ISOLOSS_REAL(name) asm("__real_" name)
#define ISOLOSS_WRAP(name) asm("__wrap_" name)

namespace isoloss::bench {
namespace {

using kernels::Accumulation;
using kernels::GemmProblem;
using kernels::Operand;
using kernels::PackedOperand;

thread_local double seconds = 0;

template <typename Call>
void Timed(const Call& call) {
  const double start = WallSeconds();
  call();
  seconds += WallSeconds() - start;
}

}  // namespace

double SecondsInGemms() { return seconds; }

void RealGemm(const GemmProblem& problem)
    ISOLOSS_REAL("_ZN7isoloss7kernels4GemmERKNS0_11GemmProblemE");
void TimedGemm(const GemmProblem& problem)
    ISOLOSS_WRAP("_ZN7isoloss7kernels4GemmERKNS0_11GemmProblemE");
void TimedGemm(const GemmProblem& problem) {
  Timed([&] { RealGemm(problem); });
}

void RealGemmBatch(std::span<const GemmProblem> problems, Executor& executor)
    ISOLOSS_REAL(
        "_ZN7isoloss7kernels9GemmBatchESt4spanIKNS0_11GemmProblemELm"
        "18446744073709551615EERNS_8ExecutorE");
void TimedGemmBatch(std::span<const GemmProblem> problems, Executor& executor)
    ISOLOSS_WRAP(
        "_ZN7isoloss7kernels9GemmBatchESt4spanIKNS0_11GemmProblemELm"
        "18446744073709551615EERNS_8ExecutorE");
void TimedGemmBatch(std::span<const GemmProblem> problems, Executor& executor) {
  Timed([&] { RealGemmBatch(problems, executor); });
}

/// A member function's first argument is the object.
void RealPack(PackedOperand* packed, const Operand& operand,
              const formats::Quantization* left,
              const Accumulation& accumulation)
    ISOLOSS_REAL(
        "_ZN7isoloss7kernels13PackedOperand4PackERKNS0_7OperandEPKNS_7"
        "formats12QuantizationERKNS0_12AccumulationE");
void TimedPack(PackedOperand* packed, const Operand& operand,
               const formats::Quantization* left,
               const Accumulation& accumulation)
    ISOLOSS_WRAP(
        "_ZN7isoloss7kernels13PackedOperand4PackERKNS0_7OperandEPKNS_7"
        "formats12QuantizationERKNS0_12AccumulationE");
void TimedPack(PackedOperand* packed, const Operand& operand,
               const formats::Quantization* left,
               const Accumulation& accumulation) {
  Timed([&] { RealPack(packed, operand, left, accumulation); });
}

}  // namespace isoloss::bench
