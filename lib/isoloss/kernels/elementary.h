// Computes elementary functions without libm: polynomials and IEEE operations
// are written out with explicit fused multiply-adds, and give the same bits on
// every target.
//
// The scalar functions here define the results; the vector versions used inside
// the kernels equal them bit for bit.
#pragma once

namespace isoloss::kernels {

/// Returns e^x, within 2 ulp. Special: NaN -> NaN; overflow -> +inf; underflow
/// is gradual, ending in +0.
float Exp(float x);
/// Returns the natural logarithm, within 2 ulp. Special: 0 -> -inf; x < 0 or
/// NaN -> NaN; +inf -> +inf; subnormals are exact inputs. NaN results are the
/// positive quiet NaN without payload, here and in Exp.
float Log(float x);
/// Returns 1 / (1 + e^-x), within 3 ulp, without overflow at either end.
float Sigmoid(float x);
/// Returns 1 / sqrt(x), computed by two IEEE operations.
float Rsqrt(float x);

/// The double-precision versions serve tables, schedules and initialisation;
/// accuracy in ulp and special values are as above.
double Exp(double x);
double Log(double x);
/// Computes sin x and cos x, both within 2^-52 absolute, for |x| <= 2^20.
void SinCos(double x, double* sin, double* cos);

}  // namespace isoloss::kernels
