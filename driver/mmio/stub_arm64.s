#include "textflag.h"

// Barriers over the outer shareable domain, which devices belong to: loads before everything (OSHLD), stores before
// stores (OSHST).
#define OSHLD $1
#define OSHST $2

// func Load32(p unsafe.Pointer) uint32
TEXT ·Load32(SB), NOSPLIT, $0-12
	MOVD	p+0(FP), R0
	MOVWU	(R0), R0
	DMB	OSHLD
	MOVW	R0, ret+8(FP)
	RET

// func Store32(p unsafe.Pointer, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD	p+0(FP), R0
	MOVWU	v+8(FP), R1
	DMB	OSHST
	MOVW	R1, (R0)
	RET

// func Load64(p unsafe.Pointer) uint64
TEXT ·Load64(SB), NOSPLIT, $0-16
	MOVD	p+0(FP), R0
	MOVD	(R0), R0
	DMB	OSHLD
	MOVD	R0, ret+8(FP)
	RET

// func Store64(p unsafe.Pointer, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVD	p+0(FP), R0
	MOVD	v+8(FP), R1
	DMB	OSHST
	MOVD	R1, (R0)
	RET
