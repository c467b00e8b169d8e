# bash completion of splicectl. It needs no other script, evaluates nothing and prints nothing.
_splicectl() {
	local line=${COMP_LINE:0:COMP_POINT} words=() word trimmed skip= i
	COMPREPLY=()
	# Bash cuts words at colons and other marks: join what no blank divides, and leave redirections out.
	for ((i = 0; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		trimmed=${line#"${line%%[![:space:]]*}"}
		((i == COMP_CWORD)) && word=$trimmed
		if [[ $word == *[\<\>]* ]]; then
			[[ $trimmed == "$line" && ${words[*]: -1} == [0-9] ]] && unset 'words[${#words[@]}-1]'
			skip=target
		elif [[ $skip == target && -n $word ]] && ((i < COMP_CWORD)); then
			skip=glued
		elif [[ $skip == glued && $trimmed == "$line" ]]; then
			: # the rest of a redirection's target
		elif [[ -z $skip || $skip == glued ]]; then
			if [[ $trimmed == "$line" && i -gt 0 ]]; then
				words[${#words[@]}-1]+=$word
			else
				words+=("$word")
			fi
			skip=
		fi
		line=${trimmed#"$word"}
	done
	if [[ -n $skip ]]; then
		compopt -o default 2>/dev/null
		return 0
	fi
	words=("${words[@]//[\"\']/}")
	local last=$((${#words[@]} - 1))
	((last > 0)) || return 0
	local cur=${words[last]} lines=() value directive
	mapfile -t lines < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null </dev/null)
	((${#lines[@]} > 0)) || return 0
	directive=${lines[${#lines[@]}-1]#:}
	unset 'lines[${#lines[@]}-1]'
	[[ $cur == -*=* ]] && cur=${cur#*=}
	local cut=
	[[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] && cut=${cur%"${cur##*:}"}
	for value in "${lines[@]}"; do
		value=${value%%$'\t'*}
		[[ $value == "$cur"* && $value != _activeHelp_* ]] && COMPREPLY+=("${value#"$cut"}")
	done
	[[ $directive == *[!0-9]* || -z $directive ]] && return 0
	((directive & 2)) && compopt -o nospace 2>/dev/null
	((${#COMPREPLY[@]} > 0 || directive & 4)) || compopt -o default 2>/dev/null
	return 0
}
complete -F _splicectl splicectl
